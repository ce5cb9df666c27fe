#pragma once
#include <bluetooth/bluetooth.h>
#include <bluetooth/hci.h>
#include <bluetooth/l2cap.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>

// HCIGETDEVLIST: stores the numbers of up to HCI_MAX_DEV adapters; returns their count, or -1.
static inline int blesec_hci_list(int descriptor, uint16_t *_Nonnull numbers) {
    struct {
        struct hci_dev_list_req list;
        struct hci_dev_req devices[HCI_MAX_DEV];
    } request;
    memset(&request, 0, sizeof request);
    request.list.dev_num = HCI_MAX_DEV;
    if (ioctl(descriptor, HCIGETDEVLIST, (void *)&request) < 0) return -1;
    for (int index = 0; index < request.list.dev_num; index++)
        numbers[index] = request.devices[index].dev_id;
    return request.list.dev_num;
}

// HCIGETDEVINFO: the name (up to 8 bytes), address (little-endian) and flags of an adapter. Returns 0,
// or -1 on failure.
static inline int blesec_hci_info(int descriptor, uint16_t number, char *_Nonnull name,
                                  uint8_t *_Nonnull address, uint32_t *_Nonnull flags) {
    struct hci_dev_info info;
    memset(&info, 0, sizeof info);
    info.dev_id = number;
    if (ioctl(descriptor, HCIGETDEVINFO, (void *)&info) < 0) return -1;
    memcpy(name, info.name, sizeof info.name);
    memcpy(address, info.bdaddr.b, sizeof info.bdaddr.b);
    *flags = info.flags;
    return 0;
}

// HCIGETCONNLIST: the handles and addresses (little-endian) of up to BLESEC_HCI_LINKS open LE links
// of an adapter; returns their count, or -1.
#define BLESEC_HCI_LINKS 64
static inline int blesec_hci_links(int descriptor, uint16_t number, uint16_t *_Nonnull handles,
                                   uint8_t *_Nonnull addresses) {
    struct {
        struct hci_conn_list_req list;
        struct hci_conn_info links[BLESEC_HCI_LINKS];
    } request;
    memset(&request, 0, sizeof request);
    request.list.dev_id = number;
    request.list.conn_num = BLESEC_HCI_LINKS;
    if (ioctl(descriptor, HCIGETCONNLIST, (void *)&request) < 0) return -1;
    const uint8_t le_link = 0x80; // LE_LINK, which BlueZ's headers lack
    int count = 0;
    for (int index = 0; index < request.list.conn_num; index++) {
        const struct hci_conn_info *link = &request.links[index];
        if (link->type != le_link || link->state != BT_CONNECTED) continue;
        handles[count] = link->handle;
        memcpy(addresses + 6 * count, link->bdaddr.b, sizeof link->bdaddr.b);
        count++;
    }
    return count;
}

// Binds a raw HCI socket to an adapter. The socket receives only Command Complete and Command Status
// events of the command `opcode`.
static inline int blesec_hci_bind(int descriptor, uint16_t number, uint16_t opcode) {
    struct sockaddr_hci address = {.hci_family = AF_BLUETOOTH, .hci_dev = number,
                                   .hci_channel = HCI_CHANNEL_RAW};
    if (bind(descriptor, (struct sockaddr *)&address, sizeof address) < 0) return -1;
    struct hci_filter filter = {.type_mask = 1u << HCI_EVENT_PKT,
                                .event_mask = {1u << EVT_CMD_COMPLETE | 1u << EVT_CMD_STATUS, 0},
                                .opcode = opcode};
    return setsockopt(descriptor, SOL_HCI, HCI_FILTER, &filter, sizeof filter);
}

// HCIGETDEVINFO: the largest payload of an ACL packet in bytes, and the counts of packets that the host has
// given to the adapter and received from it. On an adapter for LE and BR/EDR, the size is that for BR/EDR
// packets, even if the adapter has separate buffers for LE.
static inline int blesec_hci_packets(int descriptor, uint16_t number, uint16_t *_Nonnull size,
                                     uint32_t *_Nonnull sent, uint32_t *_Nonnull received) {
    struct hci_dev_info info;
    memset(&info, 0, sizeof info);
    info.dev_id = number;
    if (ioctl(descriptor, HCIGETDEVINFO, (void *)&info) < 0) return -1;
    *size = info.acl_mtu;
    *sent = info.stat.acl_tx;
    *received = info.stat.acl_rx;
    return 0;
}
