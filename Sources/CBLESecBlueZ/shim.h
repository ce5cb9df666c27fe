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

// HCIGETDEVINFO: the name (up to 8 bytes), address (little-endian) and flags of an adapter.
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

// HCIGETDEVINFO: the largest payload of an ACL packet, and the counts of packets that the host has
// given to the adapter and received from it.
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
