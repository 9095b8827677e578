package com.baidu.fsg.uid;

/** The interface of UidGenerator; its exception is unchecked. */
public interface UidGenerator {
    long getUID();

    String parseUID(long uid);
}
